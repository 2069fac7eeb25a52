"""Grading: submissions in, scores out, and the judge is not in the room. The guide is `README.md`, beside this."""
