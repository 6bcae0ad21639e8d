//! What the process is told by its surroundings, read in this one place: where the person keeps
//! configuration and data, and whether colours are wanted.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::exit::Failure;

/// The part of the environment that is no connection setting.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Directory for configuration: `$XDG_CONFIG_HOME`, else what the system has for it.
    pub config_home: Option<PathBuf>,
    /// Directory for data: `$XDG_DATA_HOME`, else what the system has for it.
    pub data_home: Option<PathBuf>,
    /// Whether `NO_COLOR` is set to anything but nothing.
    pub no_color: bool,
}

impl Surroundings {
    /// Reads the real environment.
    #[must_use]
    pub fn read() -> Self {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    /// Reads an environment given as a function, which is what tests do.
    #[must_use]
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let path = |name: &str| set(name).map(PathBuf::from);
        let home = path("HOME");
        let under_home = |rest: &str| home.as_ref().map(|home| home.join(rest));
        let (config, data) = if cfg!(target_os = "macos") {
            let support = under_home("Library/Application Support");
            (support.clone(), support)
        } else if cfg!(windows) {
            (path("APPDATA"), path("LOCALAPPDATA"))
        } else {
            (under_home(".config"), under_home(".local/share"))
        };
        // A relative directory here would mean another place in every working directory, and the
        // specification of these variables says to ignore it.
        let absolute = |name: &str| path(name).filter(|path| path.is_absolute());
        Self {
            config_home: absolute("XDG_CONFIG_HOME").or(config),
            data_home: absolute("XDG_DATA_HOME").or(data),
            no_color: set("NO_COLOR").is_some(),
        }
    }

    /// The file with the contexts.
    ///
    /// # Errors
    /// When the person has no home directory at all.
    pub fn config_file(&self) -> Result<PathBuf, Failure> {
        let home = self.config_home.as_ref().ok_or_else(|| {
            Failure::usage("there is no home directory to keep contexts in")
                .with_hint("set HOME or name a file with --config")
        })?;
        Ok(home.join("felixctl").join("config.toml"))
    }

    /// The directory of the development node.
    ///
    /// # Errors
    /// When the person has no home directory at all.
    pub fn dev_dir(&self) -> Result<PathBuf, Failure> {
        let home = self.data_home.as_ref().ok_or_else(|| {
            Failure::usage("there is no home directory to keep data in")
                .with_hint("set HOME, name a directory with --data-dir, or use --ephemeral")
        })?;
        Ok(home.join("felix").join("dev"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &'static [(&str, &str)]) -> Surroundings {
        Surroundings::from_lookup(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn directories_follow_the_desktop_specification() {
        let plain = with(&[("HOME", "/home/ann")]);
        assert!(
            plain
                .config_file()
                .expect("a file")
                .starts_with("/home/ann")
        );
        let moved = with(&[("HOME", "/home/ann"), ("XDG_CONFIG_HOME", "/etc/ann")]);
        assert_eq!(
            moved.config_file().expect("a file"),
            PathBuf::from("/etc/ann/felixctl/config.toml")
        );
        let relative = with(&[("HOME", "/home/ann"), ("XDG_DATA_HOME", "data")]);
        assert!(
            relative
                .dev_dir()
                .expect("a directory")
                .starts_with("/home/ann")
        );
    }

    #[test]
    fn without_a_home_the_person_is_told_what_to_set() {
        assert_eq!(
            with(&[]).config_file().expect_err("no home").exit,
            crate::exit::Exit::Usage
        );
        assert!(with(&[]).dev_dir().is_err());
    }

    #[test]
    fn no_color_counts_only_when_it_is_not_empty() {
        assert!(with(&[("NO_COLOR", "1")]).no_color);
        assert!(!with(&[("NO_COLOR", "")]).no_color);
        assert!(!with(&[]).no_color);
    }
}
