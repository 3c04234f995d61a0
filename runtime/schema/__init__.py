"""JSON Schema: documents, what a value may be, and the machine that follows JSON texts.

`treille.runtime.grammar` is the door to constraints of all kinds, to this one too, and loads this package
last.
"""

import treille.runtime.grammar  # noqa: F401 - first, whichever of the two is asked for first
