"""What a traced program's Pythons load at their start; the folder goes on their PYTHONPATH."""
