"""The room at a glance: with an attendee's consent, each check notes its result for the instructor.

notes.py: the attendee's side. board.py: what the notes say. page.py: the instructor's page.
progress.py: what an attendee has done, for JupyterLab's menu; it stays with the attendee.
"""
