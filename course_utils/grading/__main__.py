"""`python -m course_utils.grading` is another name for `python -m course_utils grade`."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv[1:1] = ["grade"]
    runpy.run_module("course_utils", run_name="__main__", alter_sys=True)
