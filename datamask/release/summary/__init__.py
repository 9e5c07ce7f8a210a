"""What a corpus is made of, for the public: the summary that the EU's AI Act asks for, and Croissant metadata."""
