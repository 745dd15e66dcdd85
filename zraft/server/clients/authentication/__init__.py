"""How clients prove who they are, whichever protocol they speak."""
