//! Built PTX by content: the same sources, flags and compiler give the same text, so it is kept from build to build.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use crate::error::BuildError;

/// A folder of built things. Several builds, of one process or of many, may use one at a time.
pub struct Cache {
    dir: PathBuf,
}

/// A folder that nothing else uses, gone when this is dropped.
pub struct Scratch {
    dir: PathBuf,
}

/// The key of something made from `parts`.
pub fn key(parts: &[impl AsRef<[u8]>]) -> String {
    let mut hash = Sha256::new();
    for part in parts.iter().map(AsRef::as_ref) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
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
        let (path, scratch) = (self.ptx_path(key), self.scratch(key)?);
        let unfinished = scratch.path().join("ptx");
        fs::write(&unfinished, ptx).map_err(BuildError::io(&unfinished))?;
        fs::rename(&unfinished, &path).map_err(BuildError::io(&path))
    }

    /// A new folder beside the cache's content, so that files can be renamed into it.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn scratch(&self, name: &str) -> Result<Scratch, BuildError> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let dir = self.path(&format!("{name}.{}.{number}.tmp", std::process::id()));
            match fs::create_dir(&dir) {
                Ok(()) => return Ok(Scratch { dir }),
                // Of a killed process with this one's number, or of a container that shares the folder.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(BuildError::io(&dir)(error)),
            }
        }
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

impl Scratch {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is only untidy.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_parts_apart() {
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
        assert_eq!(key(&[""; 0]).len(), 32);
    }

    #[test]
    fn what_was_put_is_there_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        assert_eq!(cache.get("k"), None);
        cache.put("k", "text").expect("room");
        assert_eq!(cache.get("k").as_deref(), Some("text"));
        let names: Vec<_> = fs::read_dir(dir.path()).expect("it is there").flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn writers_at_one_time_do_not_meet() {
        let dir = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(dir.path()).expect("a cache");
        let texts = ["a".repeat(1 << 16), "b".repeat(1 << 16)];
        std::thread::scope(|scope| {
            for i in 0..8 {
                let (cache, texts) = (&cache, &texts);
                scope.spawn(move || {
                    for _ in 0..50 {
                        cache.put("k", &texts[i % 2]).expect("room");
                        let got = cache.get("k").expect("somebody put it");
                        assert!(texts.contains(&got), "a torn text of {} bytes", got.len());
                    }
                });
            }
        });
    }

    #[test]
    fn a_lock_lets_one_in() {
        let dir = tempfile::tempdir().expect("a folder");
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let cache = Cache::open(dir.path()).expect("a cache");
                    let work = || {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::sleep(std::time::Duration::from_millis(2));
                        inside.fetch_sub(1, Ordering::SeqCst);
                        Ok(())
                    };
                    cache.exclusively("name", work).expect("in turn");
                });
            }
        });
    }
}
