"""Scripts that ask libraries which may crash or hang: each runs in a process of its own.

Each prints one line of JSON, its answer.
"""
