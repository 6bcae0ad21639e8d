//! A typed configuration from defaults, a TOML file and the environment.

use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

/// Why a configuration could not be read. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum LoadRefused {
    /// A key is unknown, misspelt or has a bad value; the text names where it stands.
    #[error("the configuration is refused: {0}")]
    Value(#[from] Box<figment::Error>),
    /// The file could not be read.
    #[error("the configuration file {path} cannot be read: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Reads defaults, then the file, then the environment; later wins. `environment` pairs each variable with the key it
/// sets, a dot between a table and its key. A variable that is empty counts as unset.
///
/// # Errors
/// [`LoadRefused`] names the key and where it stands.
pub fn load<T: Default + Serialize + DeserializeOwned>(
    file: Option<&Path>,
    environment: &[(&'static str, &'static str)],
) -> Result<T, LoadRefused> {
    let mut figment = Figment::from(Serialized::defaults(T::default()));
    if let Some(path) = file {
        let text = std::fs::read_to_string(path).map_err(|source| LoadRefused::File {
            path: path.into(),
            source,
        })?;
        // Parsing it as a whole first gives an error that names the line.
        toml::from_str::<toml::Table>(&text).map_err(|error| {
            Box::new(figment::Error::from(format!("{}: {error}", path.display())))
        })?;
        figment = figment.merge(Toml::string(&text));
    }
    for &(variable, key) in environment {
        if !is_set(variable) {
            continue;
        }
        let env = Env::raw().only(&[variable]);
        figment = figment.merge(env.map(move |_| key.into()).split("."));
    }
    Ok(figment.extract().map_err(Box::new)?)
}

#[expect(
    clippy::disallowed_methods,
    reason = "configurations are read through here"
)]
fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !value.is_empty())
}

/// A configuration as TOML, as `--print-config` shows it.
pub fn to_toml<T: Serialize>(config: &T) -> String {
    toml::to_string_pretty(config).unwrap_or_else(|error| format!("# {error}\n"))
}

/// A switch: `true`, `false`, or the `1` and `0` that environment variables carry.
///
/// # Errors
/// Any other number.
pub fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Bool(bool),
        Number(u8),
    }
    match Written::deserialize(deserializer)? {
        Written::Bool(on) => Ok(on),
        Written::Number(0) => Ok(false),
        Written::Number(1) => Ok(true),
        Written::Number(other) => Err(serde::de::Error::custom(format!(
            "{other} is neither true, false, 1 nor 0"
        ))),
    }
}

/// A list, or its members with commas between, as environment variables carry them.
///
/// # Errors
/// What is neither a list of strings nor a string.
pub fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        List(Vec<String>),
        Commas(String),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::List(members) => members,
        Written::Commas(text) => text
            .split(',')
            .map(str::trim)
            .filter(|member| !member.is_empty())
            .map(str::to_owned)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize, Serialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Config {
        #[serde(deserialize_with = "flag")]
        on: bool,
        #[serde(deserialize_with = "list")]
        members: Vec<String>,
    }

    fn from_toml(text: &str) -> Result<Config, String> {
        Figment::from(Serialized::defaults(Config::default()))
            .merge(Toml::string(text))
            .extract()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_switch_takes_words_and_digits() {
        assert!(from_toml("on = 1").unwrap().on);
        assert!(from_toml("on = true").unwrap().on);
        assert!(from_toml("on = 2").is_err());
    }

    #[test]
    fn a_list_takes_commas_too() {
        let members = |text: &str| from_toml(text).unwrap().members;
        assert_eq!(members("members = 'a:1, b:2,'"), ["a:1", "b:2"]);
        assert_eq!(members("members = ['a:1']"), ["a:1"]);
    }

    #[test]
    fn a_file_that_is_no_toml_is_named_with_its_line() {
        let file = std::env::temp_dir().join(format!("felix-process-{}.toml", std::process::id()));
        std::fs::write(&file, "on = 1\nbad bad\n").unwrap();
        let error = load::<Config>(Some(&file), &[]).unwrap_err().to_string();
        std::fs::remove_file(&file).unwrap();
        assert!(error.contains("line 2"), "{error}");
    }
}
