# Whether a process runs from the version in this directory. Compared by device and inode, which hold in containers and chroots too, and
# by path: the same version, installed again, replaces the file of a running process. Without /proc nothing is known, and the version stays.
is_in_use() {
  [ -e /proc/self/exe ] || return 0
  for each in /proc/[0-9]*/exe; do
    [ "$each" -ef "$1/bin/node" ] && return 0
    case $(readlink "$each") in "$1/bin/node" | "$1/bin/node (deleted)") return 0 ;; esac
  done
  return 1
}

# Removes every version but the named one that no process runs from.
remove_unused() {
  for directory in "$root/versions"/*; do
    [ -d "$directory" ] && [ ! -L "$directory" ] || continue
    [ "${directory##*/}" = "$1" ] || is_in_use "$directory" || rm -rf "$directory"
  done
}
