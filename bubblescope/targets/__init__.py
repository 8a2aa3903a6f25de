"""What can be traced and optimised: each target runs decode steps, and says what it is."""
