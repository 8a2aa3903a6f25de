"""Measures passes: plan, interleaved rounds, statistics, and the gates of correctness."""
