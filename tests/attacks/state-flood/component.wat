;; Keeps state under ever new names, which would stay for the whole run.
(import "tunebox:method/optimizer@0.2.0" "all" (func $all (result i32)))
(import "tunebox:method/optimizer@0.2.0" "[method]parameter.set-state" (func $keep (param i32 i32 i32 i32 i32)))
(import "tunebox:method/tensor@0.2.0" "full" (func $full (param i32 i32 f32 i32)))
;; 256: a shape; 272: a name, whose last letter changes.
(data (i32.const 256) "\03\00\00\00")
(data (i32.const 272) "state-A")
(func $step (param i32) (result i32)
  (local $number i32) (local $parameter i32)
  (call $full (i32.const 256) (i32.const 1) (f32.const 1) (i32.const 64))
  (local.set $number (call $handle))
  (local.set $parameter (call $all))
  (loop $more
    (i32.store8 (i32.const 278) (i32.add (i32.const 1) (i32.load8_u (i32.const 278))))
    (call $keep (local.get $parameter) (i32.const 272) (i32.const 7) (local.get $number) (i32.const 64))
    (br_if $more (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
