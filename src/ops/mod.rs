//! The mathematics on plain slices: one function for each formula of model.md 3.
