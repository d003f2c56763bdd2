"""Questions that want yes or no: the words themselves (`spoken.py`), what is asked (`asked.py`), the question's own words repeated
(`question.py`), opposites of them (`opposites.py`, `exclusive.py`), denials (`denied.py`), the rules (`rules.py`)."""
