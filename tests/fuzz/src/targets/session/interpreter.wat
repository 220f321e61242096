;; Makes the calls of a program, which comes as the integers of the settings. `contract.rs` puts the imports before this
;; text, and behind it one function for each import: `$call-N`, with its arguments at 256.
;;
;; Memory: 0 the answer of an export, 64 that of an import, 256 the arguments of a call, 512 the words of a refusal, 1024
;; how many arguments each function has, 8192 the handles of each kind (their number, then as many), 16384 a list of
;; handles, 65536 the state (five counters and what became of each call), 73728 the program, 196608 what the host
;; allocates, which is forgotten at the next call. Saving the state drops all handles: a resumed guest has none either.
(memory (export "memory") 8)
(data (i32.const 512) "the program says so")
(global $heap (mut i32) (i32.const 196608))
(global $skip (mut i32) (i32.const 0))
(global $place (mut i32) (i32.const 0))
(global $end (mut i32) (i32.const 0))
(global $left (mut i32) (i32.const 0))
(global $from (mut i32) (i32.const 0))
(global $to (mut i32) (i32.const 0))
(global $noted (mut i32) (i32.const 0))

(func (export "cabi_realloc") (param i32 i32) (param $align i32) (param $size i32) (result i32)
  (local $at i32)
  (local.set $at
    (i32.and (i32.add (global.get $heap) (i32.sub (local.get $align) (i32.const 1)))
      (i32.sub (i32.const 0) (local.get $align))))
  (global.set $heap (i32.add (local.get $at) (local.get $size)))
  (local.get $at))

;; The address of the handles of a kind.
(func $table (param $kind i32) (result i32)
  (i32.add (i32.const 8192) (i32.mul (local.get $kind) (i32.const 768))))

;; Keeps a handle, if there is room.
(func $push (param $kind i32) (param $handle i32)
  (local $at i32) (local $count i32)
  (local.set $at (call $table (local.get $kind)))
  (local.set $count (i32.load (local.get $at)))
  (if (i32.ge_u (local.get $count) (i32.const 191)) (then (return)))
  (i32.store (local.get $at) (i32.add (local.get $count) (i32.const 1)))
  (i32.store (i32.add (i32.add (local.get $at) (i32.const 4)) (i32.shl (local.get $count) (i32.const 2))) (local.get $handle)))

;; Puts a handle in the place of a number at an address: 0 is the last one made. A number from 0xffff0000 on is taken for
;; a handle as it is. Where there is none, the call is left out. With `$gone`, the handle is not kept any more.
(func $pick (param $kind i32) (param $address i32) (param $gone i32)
  (local $at i32) (local $count i32) (local $number i32)
  (local.set $number (i32.load (local.get $address)))
  (if (i32.ge_u (local.get $number) (i32.const 0xffff0000))
    (then (i32.store (local.get $address) (i32.and (local.get $number) (i32.const 0xffff))) (return)))
  (local.set $at (call $table (local.get $kind)))
  (local.set $count (i32.load (local.get $at)))
  (if (i32.eqz (local.get $count)) (then (global.set $skip (i32.const 1)) (return)))
  (local.set $number
    (i32.add (local.get $at)
      (i32.shl (i32.sub (local.get $count) (i32.rem_u (local.get $number) (local.get $count))) (i32.const 2))))
  (i32.store (local.get $address) (i32.load (local.get $number)))
  (if (local.get $gone)
    (then
      (i32.store (local.get $number)
        (i32.load (i32.add (local.get $at) (i32.shl (local.get $count) (i32.const 2)))))
      (i32.store (local.get $at) (i32.sub (local.get $count) (i32.const 1))))))

;; The same for a list: its address and its length are at `$address`.
(func $pick-all (param $kind i32) (param $address i32)
  (local $at i32) (local $end i32) (local $from i32)
  (local.set $from (i32.load (local.get $address)))
  (local.set $at (i32.const 16384))
  (local.set $end (i32.add (local.get $at) (i32.shl (i32.load offset=8 (local.get $address)) (i32.const 2))))
  (i32.store (local.get $address) (local.get $at))
  (loop $next
    (if (i32.ge_u (local.get $at) (local.get $end)) (then (return)))
    (i32.store (local.get $at) (i32.load (local.get $from)))
    (call $pick (local.get $kind) (local.get $at) (i32.const 0))
    (local.set $at (i32.add (local.get $at) (i32.const 4)))
    (local.set $from (i32.add (local.get $from) (i32.const 4)))
    (br $next)))

;; Keeps the first handles of a list in the answer of an import.
(func $push-all (param $kind i32)
  (local $at i32) (local $left i32)
  (local.set $at (i32.load (i32.const 68)))
  (local.set $left (i32.load (i32.const 72)))
  (loop $next
    (if (i32.eqz (local.get $left)) (then (return)))
    (call $push (local.get $kind) (i32.load (local.get $at)))
    (local.set $at (i32.add (local.get $at) (i32.const 4)))
    (local.set $left (i32.sub (local.get $left) (i32.const 1)))
    (br $next)))

;; Notes what became of a call: 0, or one more than the code of the error.
(func $note (param $function i32) (param $code i32)
  (local $at i32)
  (if (i32.ge_u (global.get $noted) (i32.const 2000)) (then (return)))
  (local.set $at (i32.add (i32.const 65600) (i32.shl (global.get $noted) (i32.const 2))))
  (i32.store16 (local.get $at) (local.get $function))
  (i32.store16 offset=2 (local.get $at) (local.get $code))
  (global.set $noted (i32.add (global.get $noted) (i32.const 1))))

;; The same for an answer that may be an error. One that is the host's own fault is written to the log.
(func $answered (param $function i32) (result i32)
  (local $code i32)
  (if (i32.eqz (i32.load8_u (i32.const 64))) (then (call $note (local.get $function) (i32.const 0)) (return (i32.const 1))))
  (local.set $code (i32.load8_u (i32.const 68)))
  (call $note (local.get $function) (i32.add (local.get $code) (i32.const 1)))
  (if (i32.or (i32.eq (local.get $code) (i32.const 6)) (i32.ge_u (local.get $code) (i32.const 8)))
    (then (call $tell (i32.load (i32.const 72)) (i32.load (i32.const 76)))))
  (i32.const 0))

;; Goes on in the program to the end of this call: 0 if it is done, 1 if it refuses.
(func $run (result i32)
  (local $what i32) (local $size i32)
  (loop $next
    (if (i32.and (i32.ne (global.get $left) (i32.const 0)) (i32.eq (global.get $place) (global.get $to)))
      (then
        (global.set $left (i32.sub (global.get $left) (i32.const 1)))
        (global.set $place (global.get $from))))
    (if (i32.ge_u (global.get $place) (global.get $end)) (then (return (i32.const 0))))
    (local.set $what (i32.load16_u offset=73728 (global.get $place)))
    (global.set $place (i32.add (global.get $place) (i32.const 2)))
    (if (i32.lt_u (local.get $what) (i32.const 0xfff0))
      (then
        (local.set $size (i32.shl (i32.load8_u offset=1024 (local.get $what)) (i32.const 3)))
        (memory.copy (i32.const 256) (i32.add (i32.const 73728) (global.get $place)) (local.get $size))
        (global.set $place (i32.add (global.get $place) (local.get $size)))
        (global.set $skip (i32.const 0))
        (global.set $heap (i32.const 196608))
        (call_indirect (type $call) (local.get $what))
        (br $next)))
    (if (i32.eq (local.get $what) (i32.const 0xfff0)) (then (return (i32.const 0))))
    (if (i32.eq (local.get $what) (i32.const 0xfff1)) (then (unreachable)))
    (if (i32.eq (local.get $what) (i32.const 0xfff2)) (then (return (i32.const 1))))
    (if (i32.eq (local.get $what) (i32.const 0xfff3)) (then (call $drop-all)))
    (if (i32.eq (local.get $what) (i32.const 0xfff4)) ;; What follows so many bytes, so often again.
      (then
        (global.set $left (i32.load offset=73728 (global.get $place)))
        (global.set $from (i32.add (global.get $place) (i32.const 8)))
        (global.set $to (i32.add (global.get $from) (i32.load offset=73732 (global.get $place))))
        (global.set $place (global.get $from))))
    (if (i32.eq (local.get $what) (i32.const 0xfff5)) ;; Does not give the batch back.
      (then (i32.store (call $table (global.get $batches)) (i32.const 0))))
    (br $next))
  (unreachable))

(func $answer (param $refused i32) (result i32)
  (i32.store (i32.const 0) (local.get $refused))
  (i32.store (i32.const 4) (i32.const 512))
  (i32.store (i32.const 8) (i32.const 19))
  (global.set $heap (i32.const 196608))
  (i32.const 0))

(func (export "tunebox:method/training@0.2.0#init") (param $at i32) (param $count i32) (result i32)
  (local $to i32)
  (global.set $place (i32.load offset=16 (local.get $at)))
  (global.set $end (i32.load offset=20 (local.get $at)))
  (local.set $to (i32.const 73728))
  (loop $next
    (local.set $at (i32.add (local.get $at) (i32.const 24)))
    (if (local.tee $count (i32.sub (local.get $count) (i32.const 1)))
      (then
        (i64.store (local.get $to) (i64.load offset=16 (local.get $at)))
        (local.set $to (i32.add (local.get $to) (i32.const 8)))
        (br $next))))
  (call $answer (call $run)))

(func (export "tunebox:method/training@0.2.0#step") (param $batch i32) (result i32)
  (local $refused i32)
  (call $push (global.get $batches) (local.get $batch))
  (local.set $refused (call $run))
  (call $drop-batches)
  (call $answer (local.get $refused)))

(func (export "tunebox:method/training@0.2.0#finish") (result i32) (call $answer (call $run)))

(func (export "tunebox:method/training@0.2.0#save-state") (result i32)
  (call $drop-all)
  (i32.store (i32.const 65536) (global.get $place))
  (i32.store (i32.const 65540) (global.get $left))
  (i32.store (i32.const 65544) (global.get $from))
  (i32.store (i32.const 65548) (global.get $to))
  (i32.store (i32.const 65552) (global.get $noted))
  (i32.store (i32.const 0) (i32.const 65536))
  (i32.store (i32.const 4) (i32.const 8192))
  (i32.const 0))

(func (export "tunebox:method/training@0.2.0#load-state") (param $at i32) (param $size i32) (result i32)
  (call $drop-all)
  (memory.copy (i32.const 65536) (local.get $at) (local.get $size))
  (global.set $place (i32.load (i32.const 65536)))
  (global.set $left (i32.load (i32.const 65540)))
  (global.set $from (i32.load (i32.const 65544)))
  (global.set $to (i32.load (i32.const 65548)))
  (global.set $noted (i32.load (i32.const 65552)))
  (call $answer (i32.const 0)))
