#!/bin/bash
# Runs a command beside a Slurm of one node, node0, which has this machine's processors and three GPUs in name only.
#   unshare --net --uts --mount --pid --fork --kill-child --mount-proc slurm.sh DIR COMMAND...
# Everything is below DIR, in namespaces of its own: it disturbs no other Slurm and no ports, and ends with COMMAND.
set -euo pipefail
dir=$1
shift
hostname node0
ip link set lo up
ip link add eth0 type bridge # the resolver gives no address to a machine that has only the loopback
ip address add 198.51.100.1/32 dev eth0
ip link set eth0 up
printf '127.0.0.1 localhost\n198.51.100.1 node0\n' > "$dir/hosts"
mount --bind "$dir/hosts" /etc/hosts

mkdir -m 700 "$dir/munge"
head -c 64 /dev/urandom > "$dir/munge/key"
chmod 600 "$dir/munge/key"
# It would have DIR open to all users.
munged --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" \
  --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" 2> /dev/null

for i in 0 1 2; do mknod "$dir/gpu$i" c 1 3; done
echo "NodeName=node0 Name=gpu File=$dir/gpu[0-2]" > "$dir/gres.conf"
mkdir "$dir/state" "$dir/spool"
export SLURM_CONF=$dir/slurm.conf
echo "ClusterName=test SlurmctldHost=node0" > "$SLURM_CONF"
node=$(slurmd -C | sed -n '/^NodeName/p')
# As on many a cluster, steps are bound to their processors, and a job has little memory unless it asks.
tr ' ' '\n' > "$SLURM_CONF" <<CONF
ClusterName=test SlurmctldHost=node0 SlurmUser=root SlurmdUser=root MpiDefault=none ReturnToService=2
AuthType=auth/munge AuthInfo=socket=$dir/munge/socket CredType=cred/munge
StateSaveLocation=$dir/state SlurmdSpoolDir=$dir/spool SlurmctldPidFile=$dir/slurmctld.pid SlurmdPidFile=$dir/slurmd.pid
ProctrackType=proctrack/linuxproc TaskPlugin=task/affinity GresTypes=gpu
SelectType=select/cons_tres SelectTypeParameters=CR_Core_Memory DefMemPerNode=100
CONF
printf '%s Gres=gpu:3\nPartitionName=all Nodes=ALL Default=YES\n' "$node" >> "$SLURM_CONF"
slurmctld -D -L "$dir/slurmctld.log" 2> /dev/null &
slurmd -D -L "$dir/slurmd.log" 2> /dev/null &
for _ in $(seq 120); do
  [ "$(sinfo -h -o %T 2> /dev/null)" != idle ] || exec "$@"
  sleep 0.5
done
tail -n 20 "$dir"/slurm*.log >&2
exit 1
