# Debian packages (`make package`): which file is in which package, and what each says of itself. Maintainer scripts,
# configurations, man pages and completion come from deploy/packages, units from deploy/systemd.
set(TROUPE_HELPERS libexec/troupe)  # programs that only other programs start
set(TROUPE_DOCS ${PROJECT_BINARY_DIR}/packages)
find_package(Python3 COMPONENTS Interpreter REQUIRED)
set(TROUPE_PACKAGED trouped troupe troupe-store troupe-sim)
if(TROUPE_CUDA)
  list(APPEND TROUPE_PACKAGED troupe-gpu-probe)
endif()

# Man pages and changelogs. The pages are made of what --help prints, so they cannot differ from it.
add_custom_command(OUTPUT ${TROUPE_DOCS}/stamp
  COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/deploy/packages/man_pages.py
          --programs ${PROJECT_BINARY_DIR}/bin --release ${PROJECT_VERSION} --out ${TROUPE_DOCS}
  COMMAND ${CMAKE_COMMAND} -E touch ${TROUPE_DOCS}/stamp
  DEPENDS ${TROUPE_PACKAGED} ${PROJECT_SOURCE_DIR}/deploy/packages/man_pages.py VERBATIM)
add_custom_target(package_files DEPENDS ${TROUPE_DOCS}/stamp ${TROUPE_PACKAGED} troupe-gpu-worker troupe-import)

set(components daemon gpu-worker cli sim)
install(TARGETS trouped COMPONENT daemon DESTINATION bin)
install(TARGETS troupe-import COMPONENT daemon DESTINATION ${TROUPE_HELPERS})
install(FILES deploy/systemd/troupe-manager.service deploy/systemd/troupe-gateway.service deploy/systemd/troupe-node.service
  COMPONENT daemon DESTINATION lib/systemd/system)
install(FILES deploy/systemd/sysusers.conf COMPONENT daemon DESTINATION lib/sysusers.d RENAME troupe.conf)
install(FILES deploy/systemd/tmpfiles.conf COMPONENT daemon DESTINATION lib/tmpfiles.d RENAME troupe.conf)
install(FILES deploy/packages/config/manager.yml deploy/packages/config/gateway.yml deploy/packages/config/node.yml
  COMPONENT daemon DESTINATION /etc/troupe)
install(FILES ${TROUPE_DOCS}/trouped.8.gz COMPONENT daemon DESTINATION share/man/man8)
install(TARGETS troupe-gpu-worker COMPONENT gpu-worker DESTINATION ${TROUPE_HELPERS})
install(TARGETS troupe troupe-store COMPONENT cli DESTINATION bin)
install(FILES ${TROUPE_DOCS}/troupe.1.gz ${TROUPE_DOCS}/troupe-store.1.gz COMPONENT cli DESTINATION share/man/man1)
install(FILES deploy/packages/completion/troupe.bash COMPONENT cli DESTINATION share/bash-completion/completions RENAME troupe)
install(FILES deploy/packages/completion/troupe.zsh COMPONENT cli DESTINATION share/zsh/vendor-completions RENAME _troupe)
install(FILES deploy/packages/completion/troupe.fish COMPONENT cli DESTINATION share/fish/vendor_completions.d)
install(TARGETS troupe-sim COMPONENT sim DESTINATION bin)
install(FILES ${TROUPE_DOCS}/troupe-sim.1.gz COMPONENT sim DESTINATION share/man/man1)
if(TROUPE_CUDA)
  list(APPEND components cuda)
  add_dependencies(package_files troupe_gpu_cuda)
  install(TARGETS troupe_gpu_cuda COMPONENT cuda DESTINATION ${TROUPE_HELPERS})
  install(TARGETS troupe-gpu-probe COMPONENT cuda DESTINATION bin)
  install(FILES ${TROUPE_DOCS}/troupe-gpu-probe.1.gz COMPONENT cuda DESTINATION share/man/man1)
  install(FILES deploy/systemd/cuda.conf COMPONENT cuda DESTINATION lib/systemd/system/troupe-node.service.d)
endif()
foreach(component IN LISTS components)
  install(FILES deploy/packages/debian/copyright COMPONENT ${component} DESTINATION share/doc/troupe-${component})
  install(FILES ${TROUPE_DOCS}/changelog.gz COMPONENT ${component} DESTINATION share/doc/troupe-${component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL ${components})
set(CPACK_PACKAGE_NAME troupe)
set(CPACK_PACKAGE_VENDOR Troupe)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "Troupe maintainers <maintainers@troupe.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# The tools' own caches and folders must not differ between two builds of one commit.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# troupe_package(COMPONENT SECTION "summary" "description" [CONTROL files ...] [DEPENDS text] [RECOMMENDS text] [SUGGESTS text])
function(troupe_package component section summary description)
  cmake_parse_arguments(PACKAGE "" "DEPENDS;RECOMMENDS;SUGGESTS" "CONTROL" ${ARGN})
  string(TOUPPER ${component} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME troupe-${component} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_DESCRIPTION "${summary}\n${description}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "${PACKAGE_DEPENDS}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_RECOMMENDS "${PACKAGE_RECOMMENDS}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SUGGESTS "${PACKAGE_SUGGESTS}" PARENT_SCOPE)
  list(TRANSFORM PACKAGE_CONTROL PREPEND ${PROJECT_SOURCE_DIR}/deploy/packages/debian/)
  set(CPACK_DEBIAN_${key}_PACKAGE_CONTROL_EXTRA "${PACKAGE_CONTROL}" PARENT_SCOPE)
endfunction()

troupe_package(daemon net "daemon of a cluster that serves functions on GPUs"
"The manager, gateways and nodes of a Troupe cluster are this one program,
each with a systemd unit of its own. Nothing is started at installation:
say in /etc/troupe what the machine is, then enable a unit."
  CONTROL daemon/postinst daemon/prerm daemon/postrm daemon/conffiles
  DEPENDS "systemd, init-system-helpers (>= 1.52)"
  RECOMMENDS "troupe-gpu-worker (= ${PROJECT_VERSION}), troupe-cli")
troupe_package(gpu-worker net "worker process of a Troupe node, one for each GPU"
"Owns the memory and the streams of one GPU, real or virtual, and computes
on it inside a jail. It is started by trouped, and outlives it."
  DEPENDS "troupe-daemon (= ${PROJECT_VERSION})" SUGGESTS "troupe-cuda (= ${PROJECT_VERSION})")
troupe_package(cuda contrib/net "NVIDIA GPUs for the workers of a Troupe node"
"The plug-in by which workers reach NVIDIA's driver, and the permission for
the node's unit to open its devices. Driver, cuBLAS 13 and cuDNN 9 are
NVIDIA's packages, and are opened by name when a worker starts."
  DEPENDS "troupe-gpu-worker (= ${PROJECT_VERSION})")
troupe_package(cli net "command line and shell of a Troupe cluster"
"Deploys functions, submits workflows, shows what the cluster does, issues
certificates, and backs up a stopped manager's data."
  SUGGESTS "troupe-sim")
troupe_package(sim net "simulator of Troupe clusters"
"Runs the decisions of a real cluster under virtual time: workloads,
schedules of faults, and the experiments of four published systems."
  RECOMMENDS "troupe-cli")
# Just before a package is made: nothing in it is younger than its commit, so that it tells no time of its making.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/package_times.cmake)
include(CPack)
