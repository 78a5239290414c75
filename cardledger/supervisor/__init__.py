"""Starting and stopping the processes of a system."""
