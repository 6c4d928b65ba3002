//! The file as people write it: what is understood, and what they are told.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;

use forespeak_config::{Config, Context, EXAMPLE, Priority, schema};

fn env(name: &str) -> Option<String> {
    name.chars()
        .all(|c| c.is_ascii_uppercase() || c == '_')
        .then(|| format!("secret of {name}"))
}

fn parse(text: &str) -> Result<Config, String> {
    Config::parse_in(text, &Context::with_env(&env)).map_err(|problems| problems.to_string())
}

fn problems(text: &str) -> String {
    parse(text).unwrap_err()
}

const POOL: &str = "[[pools]]\nname = \"main\"\nworkers = [{ url = \"http://a:1\" }]\n";

#[test]
fn the_example_is_a_valid_file_and_says_what_the_defaults_are() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("admin.key"), "k").unwrap();
    std::fs::create_dir(folder.path().join("llama-3.1-8b")).unwrap();
    let mut context = Context::with_env(&env);
    context.folder = folder.path().to_owned();
    let config =
        Config::parse_in(EXAMPLE, &context).unwrap_or_else(|problems| panic!("{problems}"));

    let told = &config.pools[0];
    let unsaid = forespeak_config::Pool::default();
    assert_eq!(told.health, unsaid.health);
    assert_eq!(told.timeouts, unsaid.timeouts);
    assert_eq!(told.admission, unsaid.admission);
    assert_eq!(told.retries, unsaid.retries);
    assert_eq!(
        (
            told.policy,
            told.scrape_every,
            told.scrape_timeout,
            told.probe_every,
            told.drain_timeout,
            told.block_tokens
        ),
        (
            unsaid.policy,
            unsaid.scrape_every,
            unsaid.scrape_timeout,
            unsaid.probe_every,
            unsaid.drain_timeout,
            unsaid.block_tokens
        )
    );
    let mut recycling = told.recycling.clone().unwrap();
    recycling.hook = forespeak_config::Hook::default();
    assert_eq!(recycling, forespeak_config::Recycling::default());
    assert_eq!(config.server, forespeak_config::Server::default());
    assert_eq!(
        config.models[0].tokenizer.as_deref(),
        Some(&*folder.path().join("llama-3.1-8b"))
    );
}

#[test]
fn every_key_of_the_schema_stands_in_the_example() {
    fn keys<'a>(schema: &'a serde_json::Value, found: &mut Vec<&'a str>) {
        if let Some(properties) = schema.get("properties").and_then(|p| p.as_object()) {
            found.extend(properties.keys().map(String::as_str));
        }
        for definition in schema
            .get("$defs")
            .and_then(|d| d.as_object())
            .into_iter()
            .flatten()
        {
            keys(definition.1, found);
        }
    }
    let schema = schema();
    let mut found = Vec::new();
    keys(&schema, &mut found);
    // Said in words, or rarely needed.
    let left_out = [
        "health_path",
        "metrics_path",
        "chat_template",
        "index_bytes",
    ];
    for key in found.into_iter().filter(|key| !left_out.contains(key)) {
        assert!(EXAMPLE.contains(key), "{key} is not in the example");
    }
}

#[test]
fn an_empty_file_is_all_defaults() {
    assert_eq!(parse("").unwrap(), Config::default());
}

#[test]
fn unknown_keys_are_told_with_line_and_nearest_name() {
    let text = "[server]\nlistn = \"127.0.0.1:1\"\n\n[[pools]]\nname = \"main\"\nworkers = [{ url = \"http://a:1\", nme = \"x\" }]\npolcy = \"fit\"\n[pools.health]\nbanana = 1\n[limts]\n";
    assert_eq!(
        problems(text),
        "forespeak.toml:2: there is no key \"listn\" in server; did you mean \"listen\"?\n\
         forespeak.toml:6: there is no key \"nme\" in pools.workers; did you mean \"name\"?\n\
         forespeak.toml:7: there is no key \"polcy\" in pools; did you mean \"policy\"?\n\
         forespeak.toml:9: there is no key \"banana\" in pools.health; there is stale_after, wedged_after, slow_start\n\
         forespeak.toml:10: there is no key \"limts\" in this file; did you mean \"limits\"?"
    );
}

#[test]
fn syntax_and_types_are_told_with_their_line() {
    assert!(problems("[server]\nlisten = 127.0.0.1\n").starts_with("forespeak.toml:2: "));
    let wrong_type = problems("[server]\nlisten = \"x\"\n");
    assert!(wrong_type.starts_with("forespeak.toml:2: "), "{wrong_type}");
    let unit = problems(&format!("{POOL}scrape_every = \"5\"\n"));
    assert!(
        unit.contains("forespeak.toml:4") && unit.contains("such as \"30s\""),
        "{unit}"
    );
    let policy = problems(&format!("{POOL}policy = \"fitt\"\n"));
    assert!(
        policy.contains("forespeak.toml:4") && policy.contains("fit"),
        "{policy}"
    );
}

#[test]
fn everything_wrong_is_told_at_once() {
    let text = format!(
        "{POOL}
[[models]]
name = \"m\"
pool = \"mian\"

[[models]]
name = \"m\"
engine = {{}}

[[tenants]]
name = \"t\"
models = [\"n\"]
priority = \"high\"
max_priority = \"low\"
limits = {{ concurrent = 0 }}
"
    );
    let told = problems(&text);
    for (line, words) in [
        (7, "did you mean \"main\"?"),
        (9, "another one is called \"m\""),
        (13, "nobody can be this tenant"),
        (16, "higher than max_priority"),
        (18, "0 lets nothing through"),
    ] {
        let found = told.lines().any(|told| {
            told.starts_with(&format!("forespeak.toml:{line}: ")) && told.contains(words)
        });
        assert!(found, "line {line}: {words}\nin\n{told}");
    }
    assert_eq!(told.lines().count(), 5, "{told}");
}

#[test]
fn a_tenant_may_have_models_that_exist() {
    let models = |wanted: &str| {
        format!(
            "{POOL}[[models]]\nname = \"llama\"\n[[tenants]]\nname = \"t\"\nanonymous = true\nmodels = [{wanted:?}]\n"
        )
    };
    assert!(parse(&models("llama")).is_ok());
    assert!(problems(&models("lama")).contains("did you mean \"llama\"?"));
    // What workers will say they serve is not known yet.
    assert!(parse(&models("lama").replace("name = \"llama\"", "")).is_ok());
}

#[test]
fn what_cannot_work_is_refused() {
    for (text, words) in [
        ("[[pools]]\nname = \"p\"\n", "no workers"),
        (
            "[[pools]]\nname = \"p\"\nworkers = [{ url = \"https://a\" }]\n",
            "plain http",
        ),
        (
            "[[pools]]\nname = \"p\"\nworkers = [{ url = \"http://a:1\" }, { url = \"http://a:1\" }]\n",
            "same name",
        ),
        (
            "[[pools]]\nname = \"p\"\nworkers = [{ url = \"http://a:1\", events = { endpoint = \"a:1\" } }]\n",
            "tcp://",
        ),
        ("[admin]\nlisten = \"0.0.0.0:8081\"\n", "set admin.key"),
        ("[[models]]\nname = \"m\"\n", "who answers"),
        (
            "[[models]]\nname = \"m\"\nengine = {}\n[[models]]\nname = \"n\"\nengine = {}\n",
            "one model can be",
        ),
        (
            "[[models]]\nname = \"m\"\nengine = { path = \"/no/such/file\" }\n",
            "/no/such/file",
        ),
        (
            "[[tenants]]\nname = \"t\"\nkeys = [{ sha256 = \"12\" }]\n",
            "64 hexadecimal",
        ),
        (
            "[[tenants]]\nname = \"t\"\nkeys = [\"hunter2\"]\n",
            "do not stand in this file",
        ),
        (
            "[[tenants]]\nname = \"t\"\nkeys = [{ env = \"lower\" }]\n",
            "lower is not set",
        ),
        ("salt_secret = \"hunter2\"\n", "do not stand in this file"),
    ] {
        let told = problems(text);
        assert!(told.contains(words), "{text}: {told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
    let recycled = |hook: &str| problems(&format!("{POOL}recycling = {{ hook = {hook} }}\n"));
    assert!(recycled("{}").contains("command"));
    assert!(recycled("{ url = \"http://a\", command = [\"x\"] }").contains("keep one"));
    let two = format!(
        "{POOL}[[models]]\nname = \"m\"\npool = \"main\"\n[[models]]\nname = \"n\"\npool = \"main\"\n"
    );
    assert!(problems(&two).contains("serves another model"));
}

#[test]
fn secrets_are_looked_up_and_never_shown() {
    let text =
        "salt_secret = { env = \"SALT\" }\n[[tenants]]\nname = \"t\"\nkeys = [{ env = \"KEY\" }]\n";
    let config = parse(text).unwrap();
    assert_eq!(
        config.salt_secret.as_ref().unwrap().reveal(),
        Some("secret of SALT")
    );
    let shown = format!("{config:?}{}", serde_json::to_string(&config).unwrap());
    assert!(!shown.contains("secret of"), "{shown}");
    assert!(shown.contains(r#"{"env":"SALT"}"#), "{shown}");
}

#[test]
fn a_tenants_limits_are_its_own_or_everyones() {
    let text = "[limits]\nconcurrent = 8\nrequests_per_minute = 60\n[[tenants]]\nname = \"t\"\nanonymous = true\nlimits = { concurrent = 2 }\n";
    let config = parse(text).unwrap();
    let limits = config.tenants[0].limits.or(config.limits);
    assert_eq!(
        (limits.concurrent, limits.requests_per_minute),
        (Some(2), Some(60))
    );
    assert_eq!(config.tenants[0].max_priority(), Priority::Normal);
}

proptest::proptest! {
    /// Whatever is left of a file after bytes of it were lost or changed, reading it ends well.
    #[test]
    fn no_text_makes_it_panic(at in 0..EXAMPLE.len(), many in 0..200_usize, with in "[\\PC\n]{0,20}") {
        let end = EXAMPLE.len().min(at + many);
        if EXAMPLE.is_char_boundary(at) && EXAMPLE.is_char_boundary(end) {
            let text = format!("{}{with}{}", &EXAMPLE[..at], &EXAMPLE[end..]);
            if let Err(problems) = Config::parse_in(&text, &Context::with_env(&env)) {
                proptest::prop_assert!(!problems.list.is_empty());
                proptest::prop_assert!(!problems.to_string().contains("secret of"));
            }
        }
    }
}

#[test]
fn a_file_that_is_not_there_is_told() {
    let told = Config::load(Path::new("/no/such/forespeak.toml"))
        .unwrap_err()
        .to_string();
    assert!(told.contains("/no/such/forespeak.toml"), "{told}");
}

#[test]
fn shares_of_admission_and_retries_are_checked() {
    let file = "[[pools]]\nname = \"p\"\nworkers = [{ url = \"http://a:1\" }]\n\
        admission = { low_up_to = 0.9, normal_up_to = 0.8 }\nretries = { share = 2.0 }\n";
    let problems = Config::parse_in(file, &Context::with_env(&env))
        .unwrap_err()
        .to_string();
    assert!(
        problems.contains("low priority is refused first"),
        "{problems}"
    );
    assert!(problems.contains("2 is no share"), "{problems}");
}
