"""Running programs -> Timeline: what records them, each with a note of what it cannot see."""
