;; What every guest of the tests shares: memory, an allocator that only goes up, and the two
;; ways to answer, and the exports. The driver puts this behind the guest's own text.
;;
;; Memory: 0 the answer of an export, 64 the answer of an import, 256 to 4095 the guest's own
;; data, from 4096 what `cabi_realloc` gives out.
(memory (export "memory") 4)
(global $heap (mut i32) (i32.const 4096))

;; The answer "done" of an export.
(func $done (result i32)
  (i64.store (i32.const 0) (i64.const 0))
  (i32.const 0))

;; If the import's answer at 64 is an error, hands its message on as the export's own error.
(func $pass-on (result i32)
  (if (i32.eqz (i32.load8_u (i32.const 64))) (then (return (call $done))))
  (i32.store8 (i32.const 0) (i32.const 1))
  (i32.store (i32.const 4) (i32.load (i32.const 76)))
  (i32.store (i32.const 8) (i32.load (i32.const 80)))
  (i32.const 0))

;; The handle in the import's answer at 64; traps if it is an error.
(func $handle (result i32)
  (if (i32.load8_u (i32.const 64)) (then (unreachable)))
  (i32.load (i32.const 68)))

;; The contract: each export calls the guest's own function. A lent batch is given back.
(func (export "tunebox:method/training@0.2.0#init") (param i32 i32) (result i32)
  (call $init (local.get 0) (local.get 1)))
(func (export "tunebox:method/training@0.2.0#step") (param i32) (result i32)
  (local $answer i32)
  (local.set $answer (call $step (local.get 0)))
  (call $give-back (local.get 0))
  (local.get $answer))
(func (export "tunebox:method/training@0.2.0#finish") (result i32) (call $finish))
(func (export "tunebox:method/training@0.2.0#save-state") (result i32) (call $save-state))
(func (export "tunebox:method/training@0.2.0#load-state") (param i32 i32) (result i32)
  (call $load-state (local.get 0) (local.get 1)))
