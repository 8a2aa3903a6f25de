"""bubblescope: where an LLM decode step goes, and what to do about it."""
