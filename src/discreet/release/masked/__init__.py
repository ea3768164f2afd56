"""Points that belong to nobody, on which logistic regression finds one private classifier.

``existence`` says which classifiers have such points; ``binary`` makes them in closed form, ``general`` for
any number of classes, an intercept and fixed records, ``greedy`` as the paper does; ``construct`` chooses and
checks. ``labels`` and ``prior`` are what they are made from, ``encoding`` is the public map from a table to
the ball, ``plan`` trains, hides and masks, and ``method`` is the release.
"""

from discreet.release.masked.construction import Mask, Task, make_mask
from discreet.release.masked.method import MaskedRelease

__all__ = ["Mask", "MaskedRelease", "Task", "make_mask"]
