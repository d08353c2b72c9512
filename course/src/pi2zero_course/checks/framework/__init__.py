"""What the labs' checks share: how an answer is called, on one rank or on all, and how a check speaks."""
