"""For the summarizer: stories (data) and their scores."""
