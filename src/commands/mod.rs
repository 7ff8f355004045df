//! Arguments to configuration to call, one entry for each subcommand, and the exit codes.
