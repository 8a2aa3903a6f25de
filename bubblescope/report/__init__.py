"""A Diagnosis, told: as text for a terminal and as JSON. Reporters compute no diagnosis."""
