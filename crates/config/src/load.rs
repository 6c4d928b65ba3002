//! From a file's text to a configuration, or to all that is wrong with it.

use std::path::{Path as FilePath, PathBuf};

use toml::Spanned;
use toml::de::DeTable;

use crate::checks::check;
use crate::keys::unknown_keys;
use crate::path::{Path, line_of};
use crate::problem::{Problem, Problems};
use crate::schema::schema;
use crate::sections::Config;

/// The largest file read: thousands of tenants.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

/// What a file is called whose name nobody gave.
const UNNAMED: &str = "forespeak.toml";

/// What a file may refer to: the environment, and files beside it.
pub struct Context<'a> {
    /// What the file is called in problems.
    pub name: String,
    /// The folder that relative paths start from.
    pub folder: PathBuf,
    /// Looks up an environment variable.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// The environment of the process.
fn process_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Context<'static> {
    /// With files from this folder.
    pub fn beside(folder: &FilePath) -> Self {
        Self {
            name: UNNAMED.to_owned(),
            folder: folder.to_owned(),
            env: &process_env,
        }
    }
}

impl<'a> Context<'a> {
    /// With another environment than the process's.
    pub fn with_env(env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            name: UNNAMED.to_owned(),
            folder: PathBuf::new(),
            env,
        }
    }

    /// A path as it is meant: relative ones start at the folder of the configuration.
    pub(crate) fn resolve(&self, path: &FilePath) -> PathBuf {
        self.folder.join(path)
    }

    pub(crate) fn read_small(&self, path: &FilePath, most: u64) -> Result<String, String> {
        let path = self.resolve(path);
        let refuse = |why: String| format!("cannot read {}: {why}", path.display());
        let length = std::fs::metadata(&path)
            .map_err(|error| refuse(error.to_string()))?
            .len();
        if length > most {
            return Err(refuse(format!("it is larger than {most} bytes")));
        }
        std::fs::read_to_string(&path).map_err(|error| refuse(error.to_string()))
    }
}

impl Config {
    /// Reads a file. Relative paths in it start at its folder, and come out absolute or as seen from here.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(path: &FilePath) -> Result<Self, Problems> {
        let mut context = Context::beside(path.parent().unwrap_or(FilePath::new("")));
        context.name = path.display().to_string();
        let read = Context::beside(FilePath::new("")).read_small(path, MAX_FILE_BYTES);
        let text = read.map_err(|message| {
            let line = None;
            Problems::new(&context.name, vec![Problem { line, message }])
        })?;
        Self::parse_in(&text, &context)
    }

    /// Reads a text that refers to nothing outside itself but the process's environment and folder.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        Self::parse_in(text, &Context::beside(FilePath::new("")))
    }

    /// Reads a text.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse_in(text: &str, context: &Context<'_>) -> Result<Self, Problems> {
        let fail = |list| Err(Problems::new(&context.name, list));
        let (document, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            return fail(errors.iter().map(|error| of_toml(text, error)).collect());
        }
        let told = |(offset, message)| Problem {
            line: Some(line_of(text, offset)),
            message,
        };
        let mut problems: Vec<Problem> = unknown_keys(document.get_ref(), &schema())
            .into_iter()
            .map(told)
            .collect();
        let mut config: Self = match toml::from_str(text) {
            Ok(config) => config,
            Err(error) => {
                problems.push(of_toml(text, &error));
                return fail(problems);
            }
        };
        let found = check(&mut config, context);
        problems.extend(found.into_iter().map(|(path, message)| Problem {
            line: Some(line_of(text, start(&path, &document))),
            message: format!("{path}: {message}"),
        }));
        if problems.is_empty() {
            Ok(config)
        } else {
            fail(problems)
        }
    }
}

fn start(path: &Path, document: &Spanned<DeTable<'_>>) -> usize {
    path.span(document).start
}

fn of_toml(text: &str, error: &toml::de::Error) -> Problem {
    Problem {
        line: error.span().map(|span| line_of(text, span.start)),
        message: error.message().to_owned(),
    }
}
