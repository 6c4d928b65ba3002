//! What tests share: the hash-LM executor, tiny models, free ports.

pub mod hash_lm;
pub mod tiny_models;
