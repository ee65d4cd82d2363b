# Runs one command so that it outlives whoever asked for it. Started by operations/process.py, which explains the files.
#
# Belongs here: what has to go on when the harness is gone: the claim, the command, its output, its exit status.
# Must not know: time limits, cancelling, or what the output means. Whoever is attached does that.
#
# Plain POSIX sh and as few programs as possible: there is one of these for each running command.
# Arguments: folder, workspace, boot id, owner mark, segment bytes, head segments, tail segments, unbuffer, then the
# command and its arguments. Descriptors: 3 and 4 are the two ends of the output pipe.
set -u
d=$1 cwd=$2 boot=$3 mark=$4 size=$5 heads=$6 tails=$7 unbuffer=$8
shift 8

# /proc/self/stat, read by the shell itself, is about the shell: field 1 its id, field 22 when it began. The name in
# field 2 may hold spaces and brackets, so count from the last bracket.
me() {
    read -r line </proc/self/stat
    pid=${line%% *}
    set -- ${line##*) }
    began=${20}
}

# The same of another process that surely lives.
of() {
    read -r line <"/proc/$1/stat"
    set -- "$1" ${line##*) }
    began=${21}
}

# The claim: of all who try, only one creates the file. Whoever fails leaves everything as it is. `true`, not `:`, here
# and below: where the redirection of a special builtin fails, a shell ends at once with a status of its own.
me
read -r up _ </proc/uptime
set -C
{ true >"$d/claim"; } 2>/dev/null || exit 75
set +C
# In one write, and before anything runs: a claim without these words is a command that never began.
printf '%s %s %s %s\n' "$pid" "$began" "$up" "$boot" >"$d/claim" || exit 74
# Room for the exit status is taken now, while there is some: a full disk must not hide how the command ended.
printf '%-40s\n' running >"$d/status" || exit 74

# Six digits without a process to make them.
named() {
    name=00000$1
    name=$d/output.${name#"${name%??????}"}
}

# Output goes to files of a fixed size, the first few and the last few of which are kept. Not into one file that the
# command itself holds: `> /dev/stdout` would empty it, and nothing would bound it.
relay() {
    trap '' INT QUIT HUP
    n=0
    while :; do
        named "$n"
        { $unbuffer head -c "$size" >"$name"; } 2>/dev/null || {
            true >"$d/lost"
            # Without a reader the command would be killed by its own output.
            exec cat >/dev/null
        }
        [ -s "$name" ] || break
        n=$((n + 1))
        old=$((n - tails))
        [ "$old" -lt "$heads" ] || { named "$old" && rm -f "$name"; }
    done
}
# Closed by exec, not as redirections of the call: a shell keeps copies of those to restore them, and a copy of the
# pipe's own writing end would keep the relay from ever seeing its end.
(
    exec <&3 3<&- 4>&- >/dev/null 2>&1
    relay
) &
exec 3<&-
# Here, not in the relay: whoever collects the output must find this even if the command was faster than the relay.
of "$!"
printf '%s %s\n' "$!" "$began" >"$d/relay" || exit 74

# In the foreground, since a shell makes background commands ignore the interrupt signal. The subshell becomes the
# command, so the id it records is the command's; setsid gives that a session and a process group of its own, which
# cancelling signals without hitting this shell.
(
    me
    printf '%s %s\n' "$pid" "$began" >"$d/command" || exit 74
    cd "$cwd" || { true >"$d/no-workspace"; exit 74; }
    TURNLOG_OPERATION=$mark
    export TURNLOG_OPERATION
    exec setsid "$@" >&4 2>&1 4>&-
) 2>/dev/null
code=$?
read -r up _ </proc/uptime
printf '%-40s\n' "exit $code $up" 1<>"$d/status"
