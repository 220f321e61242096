#!/bin/bash
# Runs a command as the script of a Slurm job on this machine, with daemons of its own, and prints the job's output.
# usage: slurm.sh FOLDER PORT COMMAND...
# The daemons use the ports PORT and PORT+1, write below FOLDER only, and end with this script. The node has 4 CPUs,
# whatever the machine has. Exits with the job's code; with 77, and the reason, where Slurm cannot run.
set -u
folder=$1 port=$2
shift 2
export SLURM_CONF=$folder/slurm.conf
absent() { echo "$*" >&2; exit 77; }
[[ $(id -u) == 0 ]] || absent "slurmd needs root"
for program in munged munge slurmctld slurmd sbatch srun; do
    command -v "$program" >/dev/null || absent "no $program"
done

daemons=()
running() { jobs -rp | wc -l; }
# Ends the daemons; those that do not end within 5 s are killed.
end() {
    ((${#daemons[@]})) && kill "${daemons[@]}"
    for _ in {1..50}; do (($(running))) && sleep 0.1; done
    (($(running))) && kill -9 "${daemons[@]}"
} 2>/dev/null
trap end EXIT
# Waits up to 60 s until a command succeeds; not if a daemon has ended.
await() {
    SECONDS=0
    while (($(running) == ${#daemons[@]} && SECONDS < 60)); do
        "$@" && return
        sleep 0.2
    done &>/dev/null
    return 1
}

mkdir -p "$folder"/{munge,state,spool} && chmod 755 "$folder" "$folder/munge"
(umask 077 && head -c 128 /dev/urandom >"$folder/munge/key")
munged --foreground --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --seed-file="$folder/munge/seed" --log-file="$folder/munge/log" &>"$folder/munged.log" &
daemons+=($!)
await munge --no-input --socket="$folder/munge/socket" ||
    absent "munged: $(tail -q -n 3 "$folder/munged.log" "$folder/munge/log" | tr '\n' ' ')"

sed -e "s|FOLDER|$folder|g; s|HOST|$(hostname -s)|g; s|PORT1|$((port + 1))|g; s|PORT|$port|g" \
    "$(dirname "$0")/slurm.conf" >"$SLURM_CONF"
slurmctld -D &>"$folder/slurmctld.log" &
daemons+=($!)
slurmd -D &>"$folder/slurmd.log" &
daemons+=($!)
is_idle() { [[ $(timeout 10 sinfo --noheader --format=%t) == idle ]]; }
await is_idle || absent "slurmd: $(tail -q -n 3 "$folder/slurmctld.log" "$folder/slurmd.log" | tr '\n' ' ')"

{ echo "#!/bin/bash"; printf '%q ' "$@"; echo; } >"$folder/job.sh"
sbatch --wait --ntasks=2 --output="$folder/output" "$folder/job.sh" >/dev/null
code=$?
cat "$folder/output"
exit "$code"
