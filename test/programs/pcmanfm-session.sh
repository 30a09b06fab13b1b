#!/bin/sh
# What a person does in a file manager: opens a folder, copies a file into another one, renames the copy, deletes it for good.
# Runs in an X server and a session bus of its own; waits for what must appear, and says what did not.
# usage: pcmanfm-session.sh DIRECTORY (with photos/one.txt and an empty album/ in it)
export LC_ALL=C.UTF-8

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

pcmanfm --no-desktop "$1/photos" &
manager=$!
opens '^photos$'
sleep 0.5
keys '^photos$' ctrl+a ctrl+c
pcmanfm "$1/album"
opens '^album$'
sleep 0.5
keys '^album$' ctrl+v
appears "[ -e '$1/album/one.txt' ]"
echo "copied: $(cat "$1/album/one.txt")"
sleep 0.5
keys '^album$' ctrl+a F2
opens '^Rename'
keys '^Rename' ctrl+a
xdotool type renamed.txt
keys '^Rename' Return
appears "[ -e '$1/album/renamed.txt' ] && [ ! -e '$1/album/one.txt' ]"
echo renamed
sleep 0.5
keys '^album$' ctrl+a shift+Delete
opens '^Confirm'
keys '^Confirm' Return
appears "[ ! -e '$1/album/renamed.txt' ]"
echo deleted
kill "$manager"
wait "$manager"
exit 0
