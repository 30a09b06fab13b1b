#!/bin/sh
# The life of `cfs service` under a manager of systemd: in a mount namespace with a /run and a cgroup of its own, so that nothing of
# this machine's is met and nothing stays. Waits for what must come about, and says what did not.
# usage: unshare --mount systemd-session.sh DIRECTORY NODE CFS (with HOME and the XDG directories of an account)
directory=$1 node=$2 program=$3
cfs() { "$node" "$program" "$@"; }
unit() { systemctl --user show --value -p "$1" "$name"; }
comes() {
  for _ in $(seq 600); do
    if eval "$1" 2> /dev/null; then return 0; fi
    sleep 0.1
  done
  echo "did not come about: $1"
  systemctl --user status "$name" 2>&1
  exit 1
}

mount -t tmpfs none /run && mkdir -p /run/systemd/system # sd_booted(3)
root=/sys/fs/cgroup
[ -d $root/systemd ] && root=$root/systemd
group=$root/cfs-test-$$
manager=
mkdir "$group" || { echo "no manager: no cgroup can be made"; exit 0; }
end() {
  # It leaves the group for one of its own, and would keep every mount of this machine in its copy of the namespace.
  [ -z "$manager" ] || kill -9 "$manager" 2> /dev/null
  for _ in $(seq 100); do
    find "$group" -name cgroup.procs -exec cat {} + | xargs -r kill -9 2> /dev/null
    find "$group" -depth -type d -exec rmdir {} \; 2> /dev/null
    [ -d "$group" ] || return
    sleep 0.1
  done
}
trap end EXIT
sh -c 'echo $$ > "$0/cgroup.procs" && exec /lib/systemd/systemd --user --log-target=null' "$group" &
manager=$!
for _ in $(seq 300); do
  systemctl --user show-environment > /dev/null 2>&1 && break
  kill -0 $manager 2> /dev/null || break
  sleep 0.1
done
systemctl --user show-environment > /dev/null 2>&1 || { echo "no manager: systemd --user does not start here"; exit 0; }

cfs service install "$directory" --settle 100ms | sed 's/^wrote .*/wrote/'
name=$(basename "$XDG_CONFIG_HOME"/systemd/user/cfs-mount-*.service)
echo "$(unit ActiveState) $(unit SubState), enabled: $(systemctl --user is-enabled "$name")"
echo "says: $(unit StatusText)"
echo hello > "$directory/file" && cfs sync --wait > /dev/null && echo pushed

before=$(unit MainPID)
pid=$(cfs status --json | sed -n 's/^ *"pid": \([0-9]*\),$/\1/p')
kill -9 "$pid"
comes '[ "$(unit NRestarts)" = 1 ] && [ "$(unit ActiveState)" = active ] && [ "$(unit MainPID)" != "$before" ]'
echo "started again: $(cat "$directory/file")"

cfs service remove | sed 's/^removed .*/removed/'
grep -q " $directory " /proc/mounts && echo 'still mounted'
echo "$(unit LoadState) $(unit ActiveState)"
