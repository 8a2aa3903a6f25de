"""Capture and diagnosis joined: `bubblescope.trace` in code, and `trace -- PROGRAM`.

capture/ knows nothing of the diagnosis; what needs both stands here.
"""
