#!/bin/sh
# The trash of a desktop, by the programs of GIO and the daemon of gvfs behind them. Runs in a session bus of its own, in a mount.
# usage: gio-trash-session.sh trash FILE FOLDER | restore FILE | empty
set -e
export LC_ALL=C.UTF-8

until_true() {
  for _ in $(seq 400); do
    if eval "$1"; then return 0; fi
    sleep 0.05
  done
  echo "never became true: $1"
  exit 1
}
# The address of an item in the trash.
listed() { gio trash --list | grep -F "$1" | cut -f 1 | grep .; }

case $1 in
  trash)
    gio trash "$2" "$3"
    until_true "listed '$(basename "$2")' >/dev/null && listed '$(basename "$3")' >/dev/null"
    gio trash --list | cut -f 2 | sed 's|.*/mnt/||' | sort
    ls "$(dirname "$2")"
    ;;
  restore)
    until_true "listed '$(basename "$2")' >/dev/null"
    gio trash --restore "$(listed "$(basename "$2")")"
    cat "$2"
    ;;
  empty)
    until_true "[ -n \"\$(gio list trash:///)\" ]"
    gio trash --empty
    trash=.Trash-$(id -u)
    until_true "[ -z \"\$(gio list trash:///)\" ]"
    until_true "[ -z \"\$(ls -A $trash/files; ls -A $trash/info; ls -A $trash/expunged)\" ]"
    ls -A
    ;;
esac
