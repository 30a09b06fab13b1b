#!/bin/sh
# What a person does in a file manager: opens a folder, copies a file into another one, renames the copy, deletes it for good.
# Runs in an X server and a session bus of its own; waits for what must appear, and says what did not.
# usage: pcmanfm-session.sh DIRECTORY (with photos/one.txt and an empty album/ in it)
export LC_ALL=C.UTF-8
directory=$1

appears() {
  for _ in $(seq 400); do
    if eval "$1"; then return 0; fi
    sleep 0.05
  done
  echo "did not appear: $1; windows:"
  xdotool search --onlyvisible --name . | while read -r window; do xdotool getwindowname "$window"; done
  exit 1
}
window() { xdotool search --onlyvisible --name "$1" 2>/dev/null | tail -1; }
opens() { appears "[ -n \"\$(window '$1')\" ]"; }
# There is no window manager: whoever gets keys is given the focus. A window needs a moment to act on a key.
keys() {
  xdotool windowfocus --sync "$(window "$1")"
  shift
  for key in "$@"; do
    xdotool key "$key"
    sleep 0.2
  done
}

# COMMAND...: does it until CONDITION holds. A window shows before its folder's files do, and then there is nothing to select.
until_there() {
  wanted=$1
  shift
  for _ in 1 2 3; do
    sleep 0.5
    "$@"
    for _ in $(seq 200); do
      if eval "$wanted"; then return 0; fi
      sleep 0.05
    done
  done
  appears "$wanted"
}
# One window shows the folder that was opened last.
shows() {
  pcmanfm "$directory/$1"
  opens "^$1\$"
  sleep 0.5
}
copies() {
  shows photos
  keys '^photos$' ctrl+a ctrl+c
  shows album
  keys '^album$' ctrl+v
}

pcmanfm --no-desktop "$1/photos" &
manager=$!
opens '^photos$'
until_there "[ -e '$1/album/one.txt' ]" copies
echo "copied: $(cat "$1/album/one.txt")"
until_there "[ -n \"\$(window '^Rename')\" ]" keys '^album$' ctrl+a F2
keys '^Rename' ctrl+a
xdotool type renamed.txt
keys '^Rename' Return
appears "[ -e '$1/album/renamed.txt' ] && [ ! -e '$1/album/one.txt' ]"
echo renamed
until_there "[ -n \"\$(window '^Confirm')\" ]" keys '^album$' ctrl+a shift+Delete
keys '^Confirm' Return
appears "[ ! -e '$1/album/renamed.txt' ]"
echo deleted
kill "$manager"
wait "$manager"
exit 0
