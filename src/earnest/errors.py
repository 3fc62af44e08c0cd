"""The one error a user may see.

At the boundary (task file, rows, config, model folder, command line) a mistake is one clear sentence that says what is wrong,
where, and how to fix it; the command line prints it and exits with 2. Everything else is a bug of ours and keeps its traceback.
"""


class UserError(Exception):
    """Something the user can mend.

    Args:
        message: A whole sentence: what, where, how to fix.
        details: What helps to find the place, such as the traceback of the user's own function; printed below the sentence.
    """

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details
