//! Names of headers, each declared once. Lower case, as HTTP/2 wants them.

/// A name for the request, taken from the client or made up, in the answer and in the log.
pub const REQUEST_ID: &str = "x-request-id";

/// Seconds after which a refused request may be sent again.
pub const RETRY_AFTER: &str = "retry-after";

/// Requests per minute that the tenant may send.
pub const RATE_LIMIT_REQUESTS: &str = "x-ratelimit-limit-requests";

/// Of these, what is left.
pub const RATE_REMAINING_REQUESTS: &str = "x-ratelimit-remaining-requests";

/// When all of them are there again.
pub const RATE_RESET_REQUESTS: &str = "x-ratelimit-reset-requests";

/// Tokens per minute that the tenant may use.
pub const RATE_LIMIT_TOKENS: &str = "x-ratelimit-limit-tokens";

/// Of these, what is left.
pub const RATE_REMAINING_TOKENS: &str = "x-ratelimit-remaining-tokens";

/// When all of them are there again.
pub const RATE_RESET_TOKENS: &str = "x-ratelimit-reset-tokens";

/// How urgent a request is: `low`, `normal` or `high`.
pub const PRIORITY: &str = "x-forespeak-priority";

/// Ties requests together that want the same worker.
pub const SESSION_ID: &str = "x-session-id";

/// To a worker: which of its data-parallel ranks is meant, by vLLM's name for it.
pub const DATA_PARALLEL_RANK: &str = "x-data-parallel-rank";

/// Why a worker was chosen, for tenants that may know.
pub const DECISION: &str = "x-forespeak-decision";

/// In a worker's answer: it is going and wants nothing new.
pub const DRAINING: &str = "x-forespeak-draining";

/// What the response cache did: `HIT`, `MISS`, `COALESCED` or `BYPASS`.
pub const CACHE: &str = "x-cache";

/// What a client wants of the response cache: `off`, `refresh` or `on`.
pub const CACHE_WISH: &str = "x-forespeak-cache";

/// A name for the context that an answer rests on and that is not in the request: a hash of retrieved documents.
pub const CONTEXT: &str = "x-forespeak-context";

/// Media type of a stream.
pub const EVENT_STREAM: &str = "text/event-stream";

/// Media type of everything else.
pub const JSON: &str = "application/json";

/// Media type of the metrics page.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Media type of the metrics page for those who do not ask for OpenMetrics.
pub const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
