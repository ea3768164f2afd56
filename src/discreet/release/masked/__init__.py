"""Release of artificial points on which logistic regression finds one private classifier.

``existence`` says which classifiers have such points; ``_points`` makes them in closed form for two classes,
and greedily as the paper does; ``_equations`` makes them for any number of classes, an intercept and fixed
records, from starting points of ``_points``; ``construction`` chooses among them and checks the result.
``encoding`` maps a table to the ball and chooses labels, ``_arguments`` checks what a caller gives, ``plan``
trains and masks, and ``method`` is the release.
"""

from discreet.release.masked.construction import Mask, Task, make_mask
from discreet.release.masked.method import MaskedRelease

__all__ = ["Mask", "MaskedRelease", "Task", "make_mask"]
