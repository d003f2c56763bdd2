"""The list of cases, and the page of one."""
