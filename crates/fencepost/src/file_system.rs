//! Which file systems keep file locks as the kernel's own do.

/// The name of a file system that is not on the list of those that were tried or are known to be good.
pub(crate) fn unfit(magic: u32) -> Option<String> {
    // Source: statfs(2) and linux/magic.h. In order: ext2/3/4, xfs, btrfs, tmpfs, zfs, f2fs, overlay.
    const GOOD: [u32; 7] =
        [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x2FC1_2FC1, 0xF2F5_2010, 0x794C_7630];
    match magic {
        magic if GOOD.contains(&magic) => None,
        0x6969 => Some("NFS".into()),
        0x6573_5546 => Some("FUSE or virtiofs".into()),
        0x0102_1997 => Some("9p".into()),
        0xFF53_4D42 | 0xFE53_4D42 | 0x517B => Some("SMB".into()),
        0x00C3_6400 => Some("Ceph".into()),
        magic => Some(format!("a file system of type {magic:#x}")),
    }
}
