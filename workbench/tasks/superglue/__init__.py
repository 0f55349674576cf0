"""SuperGLUE's forms of question: choices between answers, answers judged one by one, and two marked spans of a text."""
