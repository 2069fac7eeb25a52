"""`python -m course_utils.grading`: grade submissions, or a learner's own work."""

import sys

from course_utils.grading.grade import main

if __name__ == "__main__":
    sys.exit(main())
