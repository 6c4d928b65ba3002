//! Every bound on what a client may ask for. They keep one request from taking the memory or the time
//! of all others; where OpenAI or vLLM has a bound of its own, ours is not smaller.

/// Answers to one prompt (OpenAI's bound).
pub const MAX_N: usize = 128;
/// Prompts in one completions request.
pub const MAX_PROMPTS: usize = 256;
/// Prompts times answers: each is a sequence that the scheduler has to hold.
pub const MAX_CHOICES: usize = 512;
/// Messages in one chat.
pub const MAX_MESSAGES: usize = 4096;
/// Parts of one message's content.
pub const MAX_CONTENT_PARTS: usize = 4096;
/// Stop strings (OpenAI allows 4): each is looked for after every token.
pub const MAX_STOP_STRINGS: usize = 16;
/// Bytes of a stop string: so much text may be held back while it could still match.
pub const MAX_STOP_BYTES: usize = 1024;
/// Stop tokens.
pub const MAX_STOP_TOKENS: usize = 128;
/// Entries of `logit_bias` (vLLM's bound; OpenAI's is 300).
pub const MAX_LOGIT_BIAS: usize = 1024;
/// Largest bias either way (OpenAI's bound): more than enough to force or to ban a token.
pub const MAX_BIAS: f32 = 100.0;
/// Log-probabilities of the best tokens (OpenAI's bound).
pub const MAX_TOP_LOGPROBS: usize = 20;
/// Highest temperature (OpenAI's bound).
pub const MAX_TEMPERATURE: f32 = 2.0;
/// Largest presence and frequency penalty either way (OpenAI's bound).
pub const MAX_PENALTY: f32 = 2.0;
/// Largest repetition penalty; beyond it every repeated token is banned in effect.
pub const MAX_REPETITION_PENALTY: f32 = 100.0;
/// Tokens drafted ahead in one step: more never pays, for as many rows already share one pass over the weights.
pub const MAX_SPECULATIVE_DEPTH: usize = 16;
/// Bytes of a JSON schema: compiling it takes time in proportion.
pub const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// Bytes of names: model, cache salt, role.
pub const MAX_NAME_BYTES: usize = 256;
/// Entries of `chat_template_kwargs`.
pub const MAX_TEMPLATE_ARGUMENTS: usize = 64;
/// Bytes of a request id that is taken over from the client.
pub const MAX_REQUEST_ID_BYTES: usize = 128;
/// Bytes of a request's body: a million token ids fit.
pub const MAX_BODY_BYTES: usize = 8 << 20;
