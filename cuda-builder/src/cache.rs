//! Built PTX by content: the same sources, flags and compiler give the same text, so it is kept from build to build.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::BuildError;

/// A folder of built things. Several builds may use one at a time.
pub struct Cache {
    dir: PathBuf,
}

/// The key of something made from `parts`.
pub fn key(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

impl Cache {
    /// Opens, and if need be makes, the cache in `dir`.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn open(dir: &Path) -> Result<Self, BuildError> {
        fs::create_dir_all(dir).map_err(BuildError::io(dir))?;
        let dir = dir.canonicalize().map_err(BuildError::io(dir))?;
        Ok(Cache { dir })
    }

    /// A folder or file of the cache.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn ptx_path(&self, key: &str) -> PathBuf {
        self.path(&format!("{key}.ptx"))
    }

    /// The PTX under a key.
    pub fn get(&self, key: &str) -> Option<String> {
        fs::read_to_string(self.ptx_path(key)).ok()
    }

    /// Keeps PTX under a key. Readers see all of it or nothing.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, key: &str, ptx: &str) -> Result<(), BuildError> {
        let (path, temporary) = (self.ptx_path(key), self.path(&format!("{key}.{}.tmp", std::process::id())));
        fs::write(&temporary, ptx).map_err(BuildError::io(&temporary))?;
        fs::rename(&temporary, &path).map_err(BuildError::io(&path))
    }

    /// Runs `work` while no other build runs one under the same name.
    ///
    /// # Errors
    /// Those of `work`, and if the lock cannot be had.
    pub fn exclusively<T>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, BuildError>,
    ) -> Result<T, BuildError> {
        let path = self.path(&format!("{name}.lock"));
        let file = fs::File::create(&path).map_err(BuildError::io(&path))?;
        file.lock().map_err(BuildError::io(&path))?;
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_parts_apart() {
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
        assert_eq!(key(&[]).len(), 32);
    }

    #[test]
    fn what_was_put_is_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        assert_eq!(cache.get("k"), None);
        cache.put("k", "text").expect("room");
        assert_eq!(cache.get("k").as_deref(), Some("text"));
    }
}
