;; Turns its whole memory into tokens, again and again.
(import "tunebox:method/tensor@0.2.0" "ones" (func $ones (param i32 i32 i32 i32)))
(import "tunebox:method/weights@0.2.0" "read-rows" (func $read (param i32 i32 i32 i32 i32)))
(import "tunebox:method/weights@0.2.0" "add-outer" (func $outer (param i32 i32 i32 i32 f32 i32)))
(import "tunebox:method/weights@0.2.0" "project-out" (func $project (param i32 i32 i32 f32 i32 i32)))
(import "tunebox:method/text@0.2.0" "decode" (func $decode (param i32 i32 i32)))
(import "tunebox:method/text@0.2.0" "encode" (func $encode (param i32 i32 i32)))
(data (i32.const 256) "\03\00\00\00\02\00\00\00")
;; Ones of the shape [3], or [2] from 260 on.
(func $vector (param $shape i32) (result i32)
  (call $ones (local.get $shape) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $handle))
(func $step (param i32) (result i32)
  (loop $more
    (call $encode (i32.const 512) (i32.const 8000) (i32.const 64))
    (br_if $more (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
