"""What learners share whose noise is on a minimizer or on what is minimized.

``embedding`` carries rows into the unit ball by public constants; ``zero_sum`` has the coordinates that are
left when only differences between classes count; ``vector`` hides a vector of coefficients on the lattice,
``tilt`` calibrates noise on an objective, ``promises`` says what either keeps; ``classifier`` is what two
classifiers have in common towards people.
"""
