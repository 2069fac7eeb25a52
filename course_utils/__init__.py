"""PyTorch hooks, from "where did my gradient go?" to seeing what a network looks at.

Importing this package imports nothing else: each module imports what it needs.
"""

__version__ = "0.2.0"
