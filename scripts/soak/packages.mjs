// The Debian package, built from this clone: installed and driven in debootstrap(8) roots that have nothing else. Needs root, debootstrap,
// and the archive of Debian. Those for arm64 need Debian's cross compiler and qemu-user-static.
export const files = ['test/packages/debian-package.mount.test.ts', 'test/packages/arm64.mount.test.ts'];
export const environment = (releases = 'bookworm,trixie') => ({ CFS_DEBIAN_RELEASES: releases });
